// Package manager is what the binaries of this project share: flags, logging,
// health, metrics, leader election and the cache.
//
// It refuses to know any kind, controller or provider: a binary hands in its
// scheme and a function that adds its controllers.
package manager
