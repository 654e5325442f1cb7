// Package smalldisk gives tests file systems of their own, with the faults of real
// disks: full, frozen, read-only, and without power, when everything is lost that
// was not synced. Each is an ext4 in a file, mounted through a loop device.
//
// It needs Linux, root, mkfs.ext4 and loop devices; New says what is missing.
// Mounts are made in the mount namespace of the caller: Private, called first of
// all in TestMain, makes that one of the test's own, so that nothing stays behind
// however the test ends.
package smalldisk
