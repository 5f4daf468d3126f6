// Package manager contains the common parts of all binaries: flags, logging,
// health, metrics, leader election and the cache.
//
// It does not depend on a kind, controller or provider: a binary passes its
// scheme and a function that adds its controllers.
package manager
