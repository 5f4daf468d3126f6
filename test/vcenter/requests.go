package vcenter

import (
	"bytes"
	"encoding/xml"
	"maps"
	"strings"
	"sync"
)

// Methods this package looks at by name.
const (
	methodClone          = "CloneVM_Task"
	methodPowerOn        = "PowerOnVM_Task"
	methodPowerOff       = "PowerOffVM_Task"
	methodReset          = "ResetVM_Task"
	methodRename         = "Rename_Task"
	methodReconfigure    = "ReconfigVM_Task"
	methodDestroy        = "Destroy_Task"
	methodShutdownGuest  = "ShutdownGuest"
	methodRebootGuest    = "RebootGuest"
	methodWaitForUpdates = "WaitForUpdatesEx"
)

// soapMethod is the name of the call in a SOAP envelope, or "".
func soapMethod(body []byte) string {
	decoder := xml.NewDecoder(bytes.NewReader(body))
	inBody := false
	for {
		token, err := decoder.RawToken()
		if err != nil {
			return ""
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if inBody {
			return start.Name.Local
		}
		inBody = start.Name.Local == "Body"
	}
}

// readsOnly reports whether a method leaves the inventory as it is.
func readsOnly(method string) bool {
	switch method {
	case "CreatePropertyCollector", "DestroyPropertyCollector", "CreateFilter", "DestroyPropertyFilter", "CancelWaitForUpdates":
		return true // each client has its own filters
	}
	for _, prefix := range []string{"Retrieve", "ContinueRetrieve", "Find", "Query", "CurrentTime", "SessionIsActive", "Login"} {
		if strings.HasPrefix(method, prefix) {
			return true
		}
	}
	return false
}

// RequestCounts are the calls a server was sent.
type RequestCounts struct {
	// Methods are all but long polls.
	Methods map[string]int `json:"methods"`
	// LongPolls are calls of WaitForUpdatesEx.
	LongPolls int `json:"longPolls"`
	// Sessions are all calls, long polls among them, by session key.
	Sessions map[string]map[string]int `json:"sessions"`
}

type counts struct {
	mu     sync.Mutex
	counts RequestCounts
}

func newCounts() *counts {
	c := &counts{}
	c.reset()
	return c
}

func (c *counts) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts = RequestCounts{Methods: map[string]int{}, Sessions: map[string]map[string]int{}}
}

func (c *counts) add(method, session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if method == methodWaitForUpdates {
		c.counts.LongPolls++
	} else {
		c.counts.Methods[method]++
	}
	if c.counts.Sessions[session] == nil {
		c.counts.Sessions[session] = map[string]int{}
	}
	c.counts.Sessions[session][method]++
}

func (c *counts) all() RequestCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := RequestCounts{
		Methods:   maps.Clone(c.counts.Methods),
		LongPolls: c.counts.LongPolls,
		Sessions:  make(map[string]map[string]int, len(c.counts.Sessions)),
	}
	for session, methods := range c.counts.Sessions {
		out.Sessions[session] = maps.Clone(methods)
	}
	return out
}
