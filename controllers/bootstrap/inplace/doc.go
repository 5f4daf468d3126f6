// Package inplace is nova-bootstrap's runtime extension of Cluster API: it decides
// whether the workers of a MachineDeployment can be changed in place, and changes
// them. While the rollouts of a MachineDeployment are paused, Preview reports that
// decision.
//
// Cluster API's core manager calls it over TLS, without a certificate of its own.
// So a request is only a hint: the objects are read from the API server, and a
// request changes nothing but the settings of a Machine that Cluster API has marked
// for an update. While the extension does not respond, updates in place wait, and
// nothing else does.
package inplace
