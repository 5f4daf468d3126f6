// Package status computes the status of a control plane and the conditions of its
// machines from the spec, the observed facts and the decision. It reads and
// writes no object.
package status
