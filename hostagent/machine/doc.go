// Package machine is the host agent's access to the machine that it runs on:
// files, commands, the log and the clock.
//
// The agent uses no other access, so that a test can use a folder instead
// of the root of the machine, its own commands, and its own clock.
package machine
