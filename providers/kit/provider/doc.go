// Package provider describes an infrastructure provider as a value. The
// managers, the files of config, the scripts of nodes, the alerts, documents
// and tests use this value, so that they need not name a provider.
//
// A Provider contains no state, and making one sends no request.
package provider
