// Package tools finds the programs that hack/tools pins, building those that
// are not in the cache yet. It refuses programs that are not pinned there.
package tools
