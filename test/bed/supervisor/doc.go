// Package supervisor keeps the programs of a test environment running, as a
// Deployment keeps its pod running. It runs in a process that continues after
// the process that started it ends. When it ends, the programs continue, and
// the environment kills them by their cgroup. It does not know the purpose of a
// program.
package supervisor
