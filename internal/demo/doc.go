// Package demo shows promises being kept, and broken where the layer that keeps
// them is left out. It plays against real servers and, where a resource is to be
// protected, a real database.
//
// There is one function for each demonstration, in a file of its name. Each
// prints a short timeline and returns nil only if its promise held. With a layer
// left out ([Options].Without) the schedule is such that the damage is always
// there: the function returns the anomaly's error. Nothing is left to luck:
// processes are stopped and killed at moments that they are asked to wait at.
//
// Workers that are to be stopped or killed run in processes of their own
// ([RunWorker]) and do as they are told. The functions may be called from any
// goroutine, several at a time on one cluster.
package demo
