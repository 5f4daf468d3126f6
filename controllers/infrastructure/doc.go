// Package infrastructure runs the controllers of an infrastructure provider:
// clusters, machines and machine templates over one driver.
//
// It does not know any provider. A command passes one in.
package infrastructure
