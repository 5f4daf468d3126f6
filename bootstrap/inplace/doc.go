// Package inplace decides which changes of a worker's NovaConfig its host agent can
// apply while the node runs.
//
// A field is changed in place only if the result is the same as on a new machine.
// So whatever only a first boot applies needs a replacement, and so does the
// removal of a setting whose former value is unknown, such as a file that the image
// may contain too. A field that is not listed needs a replacement.
package inplace
