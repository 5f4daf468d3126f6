// Package puppet lets a Puppet server configure the node.
//
// A service gets the certificate of the node with a token from the bootstrap
// configuration, runs Puppet's agent when it starts and at an interval, and reports
// the result as a condition of the Node. The node does not depend on it: a failure
// changes the condition only.
package puppet
