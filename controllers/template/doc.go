// Package template tells what machines that do not exist yet will have, for
// every hypervisor: cluster-autoscaler reads it from a machine template when
// it scales a group of machines up from zero.
//
// A template owns nothing and is owned by whoever wants it, so the reconciler
// finds the cluster it is for, asks the driver for the size and writes it into
// the status. A size that was found stays when the hypervisor is out of reach.
//
// The package refuses to know any hypervisor, to change a template's spec, and
// to hold its deletion up.
package template
