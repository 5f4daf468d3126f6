// Package follow changes the settings of a node while it runs.
//
// A manager stores the desired settings in a Secret of the node's cluster that the
// kubelet's certificate may read. The agent watches it, applies the differences
// from the settings that it applied before, and reports the result as a condition
// of its Node.
//
// The settings that are applied, and those of a change that is in progress, are
// stored on the disk before the change begins. Each step can be repeated, so after
// a reset the change begins again. The agent rejects unknown fields, and
// settings that only a first boot applies.
package follow
