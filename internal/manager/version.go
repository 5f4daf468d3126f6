package manager

// version is the release of this binary; the linker sets it.
var version = "unreleased"

// Version returns the release of this binary.
func Version() string { return version }
