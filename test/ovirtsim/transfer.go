package ovirtsim

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// imagePath is where images are sent to and from.
const imagePath = "/images/"

// maxImage is how much of an image is kept.
const maxImage = 64 << 20

// Phases of an image transfer.
const (
	phaseInitializing = "initializing"
	phaseTransferring = "transferring"
	phaseFinalizing   = "finalizing_success"
	phaseCanceled     = "finalizing_failure"
	phaseSuccess      = "finished_success"
	phaseFailure      = "finished_failure"
)

// transfer moves an image in or out.
type transfer struct {
	meta

	disk             *disk
	direction, phase string
	format           string
	ticket           string
	moved            int64
}

func (s *Server) onTransfer(f func(q *request, t *transfer) (*elem, error)) handler {
	return func(q *request) (*elem, error) {
		t, ok := s.transfers.get(q.args[0])
		if !ok {
			return nil, notFound()
		}
		return f(q, t)
	}
}

func (s *Server) transferElem(t *transfer) *elem {
	href := apiPath + "/imagetransfers/" + t.id
	e := el("image_transfer").at(href, t.id)
	e.add(actions(href, "cancel", "extend", "finalize", "pause", "resume"))
	e.add(leaf("active", t.phase == phaseTransferring), leaf("direction", t.direction), leaf("format", t.format), leaf("phase", t.phase),
		leaf("inactivity_timeout", 60), leaf("timeout_policy", "legacy"), leaf("transferred", t.moved))
	// The address is known before the transfer is ready; clients read it then.
	if t.phase == phaseTransferring || t.phase == phaseInitializing {
		url := strings.TrimSuffix(s.URL, apiPath) + imagePath + t.ticket
		e.add(leaf("transfer_url", url), leaf("proxy_url", url))
	}
	return e.add(el("image").at(apiPath+"/images/"+t.disk.id, t.disk.id), ref("disk", "disks", t.disk.id))
}

func (s *Server) addTransfer(q *request) (*elem, error) {
	id := q.body.get("image").id()
	if id == "" {
		id = q.body.get("disk").id()
	}
	d, ok := s.disks.get(id)
	switch {
	case !ok:
		return nil, missingEntity("Disk", id)
	case d.status == diskLocked:
		return nil, diskBusy("transfer")
	}
	for _, v := range s.usersOf(id) {
		if running(v.status) {
			return nil, conflict("Cannot transfer Virtual Disk. The VM %s is running.", v.name)
		}
	}
	t := &transfer{meta: newMeta(""), disk: d, direction: q.body.str("direction"), format: q.body.str("format"), phase: phaseInitializing, ticket: newID()}
	orDefault(&t.direction, "upload")
	orDefault(&t.format, "cow")
	s.transfers.add(t)
	d.status, d.transferring = diskLocked, true
	s.finish(s.addJob(q, "Transferring Disk "+d.name))
	s.when(TimeTransfer, func() {
		if t.phase == phaseInitializing {
			t.phase = phaseTransferring
		}
	})
	return s.transferElem(t), nil
}

func (s *Server) finalizeTransfer(q *request, t *transfer) (*elem, error) {
	if t.phase != phaseTransferring {
		return nil, conflict("Cannot finalize image transfer in phase %s.", t.phase)
	}
	t.phase = phaseFinalizing
	s.endTransfer(t, phaseSuccess)
	return s.acted(q, "Finalizing transfer of Disk "+t.disk.name), nil
}

func (s *Server) cancelTransfer(q *request, t *transfer) (*elem, error) {
	if strings.HasPrefix(t.phase, "finished") {
		return nil, conflict("Cannot cancel image transfer in phase %s.", t.phase)
	}
	t.phase = phaseCanceled
	s.endTransfer(t, phaseFailure)
	return s.acted(q, "Cancelling transfer of Disk "+t.disk.name), nil
}

func (s *Server) endTransfer(t *transfer, phase string) {
	s.when(TimeTransfer, func() {
		t.phase, t.disk.transferring = phase, false
		t.disk.unlock()
		if phase == phaseFailure && t.direction == "upload" && t.disk.status == diskOK {
			t.disk.status = diskIllegal
		}
	})
}

// serveImage moves the bytes of an image, as the service beside the engine does.
func (s *Server) serveImage(w http.ResponseWriter, r *http.Request, ticket string) {
	s.mu.Lock()
	var t *transfer
	for _, other := range s.transfers.items {
		if other.ticket == ticket && other.phase == phaseTransferring {
			t = other
		}
	}
	s.mu.Unlock()
	if t == nil {
		http.Error(w, fmt.Sprintf("No such ticket: %s", ticket), http.StatusForbidden)
		return
	}
	switch r.Method {
	case http.MethodOptions:
		w.Header().Set("Allow", "GET,OPTIONS,PATCH,PUT")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"features": ["checksum", "extents", "flush", "zero"], "max_readers": 8, "max_writers": 8}`)
	case http.MethodPut:
		s.receive(w, r, t)
	case http.MethodGet, http.MethodHead:
		s.mu.Lock()
		image := newImage(t.disk)
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Time{}, image)
	case http.MethodPatch:
		w.WriteHeader(http.StatusOK)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (s *Server) receive(w http.ResponseWriter, r *http.Request, t *transfer) {
	content, err := io.ReadAll(io.LimitReader(r.Body, maxImage))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rest, _ := io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.disk.content = content
	t.moved = int64(len(content)) + rest
	t.disk.actual = max(t.disk.actual, t.moved)
	w.WriteHeader(http.StatusOK)
}

// image reads a disk: the transferred data, followed by zeros.
type image struct {
	content *bytes.Reader
	size    int64
	at      int64
}

func newImage(d *disk) *image {
	return &image{content: bytes.NewReader(d.content), size: max(d.provisioned, int64(len(d.content)))}
}

func (i *image) Read(p []byte) (int, error) {
	if i.at >= i.size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), i.size-i.at)]
	n, _ := i.content.ReadAt(p, i.at)
	clear(p[n:])
	i.at += int64(len(p))
	return len(p), nil
}

func (i *image) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += i.at
	case io.SeekEnd:
		offset += i.size
	}
	i.at = offset
	return offset, nil
}
