// Package ports finds ports of loopback for programs that tests start and that
// have to be told which port to listen on. It never returns one twice to a
// process. What can listen on a port that the system chooses should.
package ports
