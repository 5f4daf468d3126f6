// Package turns bounds how much is under way at one endpoint at a time, and
// decides which key comes next. Keys wait in one queue for each group, in the order
// in which they came, and the groups take turns: a group with a thousand keys
// does not delay a group with one by more than one turn.
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
