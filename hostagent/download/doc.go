// Package download downloads files whose SHA-256 is known, through the proxy of the
// machine.
package download
