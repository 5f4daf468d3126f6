// Package namespaces decides which namespaces may use an identity.
package namespaces
