// Package supervisor keeps the programs of a test bed running, the way a
// Deployment keeps its pod running. It runs in a process of its own that
// outlives whoever started it, and takes nothing away when it dies: the
// programs go on, and whoever ends the bed kills them by their cgroup. It
// refuses to know what a program is for.
package supervisor
