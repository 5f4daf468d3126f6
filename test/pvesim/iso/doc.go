// Package iso reads the ISO 9660 images in the drives of simulated VMs, as the
// kernel of a guest shows them: the volume ID, and the files of the root
// directory with their Rock Ridge names, or in lower case without them.
package iso
