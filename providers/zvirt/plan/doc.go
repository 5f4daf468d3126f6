// Package plan says, by pure functions, what the VM of a machine is to be: the
// request that makes it, the next step that brings what surrounds it in line,
// and what its guest reports. What names stand for is handed in.
//
// It refuses to ask anybody anything.
package plan
