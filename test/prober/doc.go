// Package prober asks something again and again and remembers when it did not
// answer. It refuses to guess: an outage begins with the first question that
// failed and ends when a later one was answered.
package prober
