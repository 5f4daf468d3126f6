// Command testsum counts the tests of a suite in the events of "go test -json"
// and says of each that did not pass why.
//
// It counts the tests of a package, as its authors would: neither subtests nor
// examples. It refuses to judge the numbers.
package main
