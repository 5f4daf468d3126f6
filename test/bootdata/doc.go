// Package bootdata reads the bootstrap data of machines in tests.
package bootdata
