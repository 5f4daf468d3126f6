package manager

// version is the release of this binary; the linker sets it.
var version = "unreleased"
