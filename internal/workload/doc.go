// Package workload is the only way from a kubeconfig Secret to a connection to
// a workload cluster. Managers read these Secrets with their own permissions
// and on their own network, while tenants may write them, so a kubeconfig is
// hostile input.
//
// RESTConfig takes the server, CA certificates, a client certificate or a token
// from a kubeconfig, all inline. It refuses every other field: files of the
// manager (tokenFile, client-certificate, certificate-authority), programs
// (exec, auth-provider), other ways (proxy-url, http) and other users (as). A
// refused kubeconfig is not used at all, and the error names the field.
//
// Each connection has bounds in size and time, follows no redirect, does not
// unpack compressed responses and connects to allowed addresses only (package
// endpoints).
//
// Secrets gives the same to Cluster API's cluster cache, which parses
// kubeconfigs itself: it returns a kubeconfig whose server has a URL scheme of
// this process, so each request of the cache passes through this package. The
// cache never sees a credential.
//
// The package does not decide how a manager handles a cluster that cannot be
// reached.
package workload
