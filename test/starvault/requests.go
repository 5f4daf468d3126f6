package starvault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// auditLog is the file with the audit log.
const auditLog = "audit.log"

// Request is a request that the server received.
type Request struct {
	// Operation is read, update or another one, and Path the path without /v1.
	Operation, Path string
	// Policies are those of the token; none for a login.
	Policies []string
}

// Requests returns the requests in the audit log from a position on, except those of the
// root token and the server's own test of the log, and the position of its end.
func (s *Server) Requests(from int64) (all []Request, end int64, err error) {
	file, err := os.Open(s.path(auditLog))
	if err != nil {
		return nil, 0, fmt.Errorf("reading the audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.NewSectionReader(file, from, math.MaxInt64-from))
	if err != nil {
		return nil, 0, fmt.Errorf("reading the audit log: %w", err)
	}
	// The last line may not be complete yet.
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	for line := range bytes.Lines(data) {
		entry := struct {
			Type string `json:"type"`
			Auth struct {
				Policies []string `json:"policies"`
			} `json:"auth"`
			Request struct {
				Operation string `json:"operation"`
				Path      string `json:"path"`
			} `json:"request"`
		}{}
		if err := json.Unmarshal(line, &entry); err != nil {
			return nil, 0, fmt.Errorf("reading the audit log: %w", err)
		}
		if entry.Type == "request" && entry.Request.Path != "sys/audit/test" && !slices.Contains(entry.Auth.Policies, "root") {
			all = append(all, Request{Operation: entry.Request.Operation, Path: entry.Request.Path, Policies: entry.Auth.Policies})
		}
	}
	return all, from + int64(len(data)), nil
}
