// Command ovirtsim runs an oVirt Engine simulator until it is interrupted. It
// prints how to reach it in the variables that oVirt's own test suites read.
//
// It refuses to decide anything: all it does is in package test/ovirtsim.
package main
