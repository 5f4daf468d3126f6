// Command testsum counts the tests of a suite in the events of "go test -json"
// and prints the reason for each test that did not pass.
//
// It counts the tests of a package, without subtests and examples. It does not
// check the numbers.
package main
