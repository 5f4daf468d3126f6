package ovirtsim

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
)

// A client that sends "Expect: 201-created" wants its answer when the work is
// done. Go's server refuses all expectations but one before a handler sees
// them, so the header goes through it under a name of the same length.
const (
	expectHeader = "Expect: 201-created\r\n"
	hiddenHeader = "Wanted: 201-created\r\n"
)

// expectListener hides expectations in what clients send.
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

// Read reads what the client sent. Clients send their headers in one piece.
func (c *expectConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	read := p[:n]
	if at := bytes.Index(bytes.ToLower(read), []byte("\r\n"+strings.ToLower(expectHeader))); at >= 0 {
		copy(read[at+2:], hiddenHeader)
	}
	return n, err
}

// expectsCreated says whether a client wants to hear of the end only.
func expectsCreated(r *http.Request) bool {
	return r.Header.Get("Wanted") == "201-created" || strings.Contains(r.Header.Get("Expect"), "201-created")
}
