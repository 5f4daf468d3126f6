package transport

import (
	"net/http"
	"testing"
)

func TestResults(t *testing.T) {
	for code, want := range map[string]string{"error": "error", "503": "error", "404": "fault", "302": "success", "201": "success"} {
		if got := result(code, http.StatusInternalServerError); got != want {
			t.Errorf("result(%s) = %s, want %s", code, got, want)
		}
	}
	// Proxmox VE rejects most requests with 500.
	for code, want := range map[string]string{"500": "fault", "502": "error"} {
		if got := result(code, http.StatusBadGateway); got != want {
			t.Errorf("result(%s) = %s, want %s", code, got, want)
		}
	}
}
