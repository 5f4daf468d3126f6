// Package ext is where a distribution of Traefik adds fields to its dynamic configuration. Traefik
// itself adds none.
package ext

// HTTP adds fields to the configuration of HTTP.
type HTTP struct{}

// Router adds fields to a router.
type Router struct{}
