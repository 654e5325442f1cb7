// Package chaos has the tests in which real servers, as processes of their own,
// meet what machines, disks and networks do at their worst: kill -9 at any system
// call, loss of power, frozen, full, failing and damaged disks, networks that cut,
// lose, delay and repeat packets, stopped processes, and clocks that jump. Clients
// write down what they do and see (package internal/check), and each run ends with
// a judgement of all of it and with equal digests on all servers.
//
// Chance decides what happens and when; its seed is printed and can be given
// again as COORD_SEED. With real processes the machine has its own part in the timing,
// so a seed repeats a run only roughly. What a failed run leaves (history, its
// judgement, the servers' logs, and a timeline of what was done to them) is in the
// directory that it names.
package chaos
