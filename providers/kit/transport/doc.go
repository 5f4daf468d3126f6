// Package transport sends HTTP requests to a hypervisor.
//
// It verifies the server, refuses addresses that the policy of the manager denies,
// limits concurrent requests, the duration of a request and the size of a response, and
// counts requests and connections. It knows no API: a client makes the requests and reads
// the responses.
package transport
