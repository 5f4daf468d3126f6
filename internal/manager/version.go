package manager

// version is that of the release this binary belongs to; the linker sets it.
var version = "unreleased"
