// Package ports finds ports of loopback for programs that tests start with a
// port as an argument. It never returns a port twice to a process. Programs
// that can listen on a port that the system chooses should do so.
package ports
