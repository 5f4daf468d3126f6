package ovirtsim

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
)

// A client that sends "Expect: 201-created" waits until the engine has
// completed the operation. Go's server rejects all but one expectation before a
// handler receives them, so the header is renamed to a name of the same length.
const (
	expectHeader = "Expect: 201-created\r\n"
	hiddenHeader = "Wanted: 201-created\r\n"
)

// expectListener renames the Expect header in the data of clients.
type expectListener struct {
	net.Listener
	config *tls.Config
}

// Accept returns the next connection, whose handshake is still to come.
func (l *expectListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &expectConn{Conn: tls.Server(conn, l.config), raw: conn}, nil
}

type expectConn struct {
	net.Conn

	raw net.Conn
}

// Read reads data of the client. Clients send their headers in one write.
func (c *expectConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	read := p[:n]
	if at := bytes.Index(bytes.ToLower(read), []byte("\r\n"+strings.ToLower(expectHeader))); at >= 0 {
		copy(read[at+2:], hiddenHeader)
	}
	return n, err
}

// expectsCreated reports whether a client waits for the end of the operation.
func expectsCreated(r *http.Request) bool {
	return r.Header.Get("Wanted") == "201-created" || strings.Contains(r.Header.Get("Expect"), "201-created")
}
