// Package turns bounds how much is under way at one endpoint at a time, and
// says who comes next: first come, first served.
//
// A key that finds no place is put in line, and is called when its turn comes.
// It has to claim the turn within a moment. Whoever does not, because its
// machine was deleted or paused meanwhile, loses the turn to the next in line,
// so that nobody who went away holds the others up.
//
// The package refuses to wait: every call returns at once. It also refuses to
// know what the turns are for, so the requests that must never wait, such as
// deletions, are those that never ask for one.
package turns
