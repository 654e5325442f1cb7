// Package demo shows, against real servers and a real database, what happens
// to a worker that loses its lock without noticing. Each demonstration prints
// a short timeline and fails if the promise did not hold; with the protecting
// layer switched off it shows the damage and fails, too.
package demo
