package starvault

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// Requests returns all requests in the audit log, except those of the root token.
func (s *Server) Requests() ([]Request, error) {
	data, err := os.ReadFile(s.path(auditLog))
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	var all []Request
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
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if entry.Type == "request" && !slices.Contains(entry.Auth.Policies, "root") {
			all = append(all, Request{Operation: entry.Request.Operation, Path: entry.Request.Path, Policies: entry.Auth.Policies})
		}
	}
	return all, nil
}
