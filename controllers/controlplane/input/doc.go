// Package input translates the observed state of a control plane into the input
// of the package plan. It reads nothing but the scope.
package input
