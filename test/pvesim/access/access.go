package access

import (
	"crypto/subtle"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/test/pvesim/schema"
)

// Root is the user who may do everything.
const Root = "root@pam"

// User is a user with a password.
type User struct {
	// Name contains the realm, such as capi@pve.
	Name     string   `json:"name"`
	Password string   `json:"password,omitempty"`
	Groups   []string `json:"groups,omitempty"`
	Disabled bool     `json:"disabled,omitempty"`
	Tokens   []Token  `json:"tokens,omitempty"`
}

// Token is an API token of a user.
type Token struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
	// Full is set for tokens without privilege separation: they have all
	// privileges of their user.
	Full bool `json:"full,omitempty"`
}

// Entry grants a role on a path to a user, a token or a group.
type Entry struct {
	Path string `json:"path"`
	// Subject is a user, a token such as capi@pve!nova, or a group such as @admins.
	Subject string `json:"subject"`
	Role    string `json:"role"`
	// NoPropagation is set if the entry does not apply to the paths below.
	NoPropagation bool `json:"noPropagation,omitempty"`
}

// Control decides about requests.
type Control struct {
	users map[string]*User
	roles map[string][]string
	// entries are the roles by path and subject, and whether they propagate.
	entries map[string]map[string]map[string]bool
	pools   Pools
}

// Pools knows the members of pools.
type Pools interface {
	// PoolsOf are the names of the pools with a member, such as /vms/100.
	PoolsOf(path string) []string
}

// New returns the control for a cluster with these users, roles and entries.
func New(users []User, roles map[string][]string, entries []Entry, pools Pools) (*Control, error) {
	c := &Control{users: map[string]*User{}, roles: builtinRoles(), entries: map[string]map[string]map[string]bool{}, pools: pools}
	maps.Copy(c.roles, roles)
	for name, privileges := range roles {
		for _, privilege := range privileges {
			if !slices.Contains(Privileges(), privilege) {
				return nil, fmt.Errorf("role %s: invalid privilege '%s'", name, privilege)
			}
		}
	}
	for _, user := range users {
		if !strings.Contains(user.Name, "@") {
			return nil, fmt.Errorf("user %s has no realm", user.Name)
		}
		c.users[user.Name] = &user
	}
	for _, entry := range entries {
		if err := c.Grant(entry); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// aclPath matches the paths that permissions can be granted on.
var aclPath = regexp.MustCompile(`^(/|/(access|access/groups|access/realm|nodes|pool|sdn|sdn/zones|storage|vms|mapping)` +
	`|/(nodes|storage|access/groups|access/realm|mapping)/[A-Za-z0-9._-]+|/mapping/[A-Za-z0-9._-]+/[A-Za-z0-9._-]+` +
	`|/pool/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,2}|/sdn/zones/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+(/[1-9][0-9]{0,3})?)?|/vms/[1-9][0-9]{2,})$`)

// Grant adds an entry.
func (c *Control) Grant(entry Entry) error {
	if !aclPath.MatchString(entry.Path) {
		return fmt.Errorf("invalid ACL path '%s'", entry.Path)
	}
	if _, ok := c.roles[entry.Role]; !ok {
		return fmt.Errorf("role '%s' does not exist", entry.Role)
	}
	if !strings.HasPrefix(entry.Subject, "@") {
		if _, err := c.find(entry.Subject); err != nil {
			return err
		}
	}
	if c.entries[entry.Path] == nil {
		c.entries[entry.Path] = map[string]map[string]bool{}
	}
	subjects := c.entries[entry.Path]
	if subjects[entry.Subject] == nil {
		subjects[entry.Subject] = map[string]bool{}
	}
	subjects[entry.Subject][entry.Role] = !entry.NoPropagation
	return nil
}

// Revoke removes all entries of a subject.
func (c *Control) Revoke(subject string) {
	for _, subjects := range c.entries {
		delete(subjects, subject)
	}
}

// RevokePath removes all entries of a path.
func (c *Control) RevokePath(path string) { delete(c.entries, path) }

// SetPassword changes a user's password. Tickets stay valid.
func (c *Control) SetPassword(name, password string) error {
	user := c.users[name]
	if user == nil {
		return fmt.Errorf("no such user ('%s')", name)
	}
	user.Password = password
	return nil
}

// find returns the user of a subject, and its token.
func (c *Control) find(subject string) (*Token, error) {
	name, id, isToken := strings.Cut(subject, "!")
	user := c.users[name]
	if user == nil {
		return nil, fmt.Errorf("no such user ('%s')", name)
	}
	if !isToken {
		return nil, nil //nolint:nilnil // a user without token
	}
	for i := range user.Tokens {
		if user.Tokens[i].ID == id {
			return &user.Tokens[i], nil
		}
	}
	return nil, fmt.Errorf("no such token '%s' for user '%s'", id, name)
}

// Login returns whether the password is the user's.
func (c *Control) Login(name, password string) bool {
	user := c.users[name]
	return user != nil && !user.Disabled && user.Password != "" && equal(user.Password, password)
}

// Enabled returns whether a user exists and may log in.
func (c *Control) Enabled(name string) bool {
	user := c.users[name]
	return user != nil && !user.Disabled
}

// Authenticate returns the subject of a token in the form of its header,
// user@realm!id=secret.
func (c *Control) Authenticate(header string) (string, bool) {
	at := strings.LastIndex(header, "=")
	if at < 0 {
		return "", false
	}
	subject := header[:at]
	token, err := c.find(subject)
	if err != nil || token == nil || !c.Enabled(UserOf(subject)) || !equal(token.Secret, header[at+1:]) {
		return "", false
	}
	return subject, true
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// UserOf returns the user of a subject.
func UserOf(subject string) string {
	name, _, _ := strings.Cut(subject, "!")
	return name
}

// Permissions returns the privileges on a path, and whether they propagate.
func (c *Control) Permissions(subject, path string) map[string]bool {
	if subject == Root {
		return c.all()
	}
	user, _, isToken := strings.Cut(subject, "!")
	if !isToken {
		return c.privileges(subject, path)
	}
	token, err := c.find(subject)
	if err != nil || token == nil {
		return nil
	}
	granted := c.Permissions(user, path)
	if token.Full {
		return granted
	}
	own := c.privileges(subject, path)
	for name, propagates := range own {
		users, ok := granted[name]
		if !ok {
			delete(own, name)
			continue
		}
		own[name] = propagates && users
	}
	return own
}

func (c *Control) all() map[string]bool {
	all := map[string]bool{}
	for _, name := range c.roles[Administrator] {
		all[name] = true
	}
	return all
}

// privileges returns the privileges of the roles of a subject on a path, those
// of pools included.
func (c *Control) privileges(subject, path string) map[string]bool {
	roles := c.rolesOn(subject, path)
	if _, none := roles[NoAccess]; !none && c.pools != nil {
		inherited := c.poolRoles(subject, path)
		if _, none := inherited[NoAccess]; none {
			roles = map[string]bool{NoAccess: false}
			inherited = nil
		}
		for role := range inherited {
			if _, set := roles[role]; !set {
				roles[role] = false
			}
		}
	}
	privileges := map[string]bool{}
	for role, propagates := range roles {
		for _, name := range c.roles[role] {
			privileges[name] = privileges[name] || propagates
		}
	}
	return privileges
}

// poolRoles returns the roles on the pools with the path as a member.
func (c *Control) poolRoles(subject, path string) map[string]bool {
	roles := map[string]bool{}
	for _, pool := range c.pools.PoolsOf(path) {
		maps.Copy(roles, c.rolesOn(subject, "/pool/"+pool))
	}
	return roles
}

// rolesOn returns the roles on a path. An entry replaces those above, an entry of
// the user those of its groups.
func (c *Control) rolesOn(subject, path string) map[string]bool {
	roles := map[string]bool{}
	for _, prefix := range prefixes(path) {
		entries := c.entries[prefix]
		own := effective(entries[subject], prefix == path)
		if len(own) == 0 && !strings.Contains(subject, "!") {
			for _, group := range c.users[subject].groups() {
				maps.Copy(own, effective(entries["@"+group], prefix == path))
			}
		}
		if len(own) > 0 {
			roles = own
		}
	}
	if propagates, ok := roles[NoAccess]; ok {
		return map[string]bool{NoAccess: propagates}
	}
	return roles
}

func (u *User) groups() []string {
	if u == nil {
		return nil
	}
	return u.Groups
}

// effective returns the roles that apply below a path, or on it.
func effective(roles map[string]bool, final bool) map[string]bool {
	out := map[string]bool{}
	for role, propagates := range roles {
		if final || propagates {
			out[role] = propagates
		}
	}
	return out
}

// prefixes returns / and all paths down to the path.
func prefixes(path string) []string {
	all := []string{"/"}
	for i := 1; i <= len(path); i++ {
		if i == len(path) && path != "/" || i < len(path) && path[i] == '/' {
			all = append(all, path[:i])
		}
	}
	return all
}

// Has returns whether a subject has all privileges on a path.
func (c *Control) Has(subject, path string, privileges ...string) bool {
	return c.Require(subject, path, privileges...) == nil
}

// Require returns an error for the first privilege that a subject does not have.
func (c *Control) Require(subject, path string, privileges ...string) error {
	has := c.Permissions(subject, path)
	for _, name := range privileges {
		if _, ok := has[name]; !ok {
			return schema.Denied(path + ", " + name)
		}
	}
	return nil
}

// RequireAny returns an error if a subject has none of the privileges.
func (c *Control) RequireAny(subject, path string, privileges ...string) error {
	has := c.Permissions(subject, path)
	for _, name := range privileges {
		if _, ok := has[name]; ok {
			return nil
		}
	}
	return schema.Denied(path + ", " + strings.Join(privileges, "|"))
}

// HasBelow returns whether a subject has one of the privileges on the path or on
// an entry directly below it.
func (c *Control) HasBelow(subject, path string, privileges ...string) bool {
	if c.RequireAny(subject, path, privileges...) == nil {
		return true
	}
	for entry := range c.entries {
		if strings.HasPrefix(entry, path+"/") && c.RequireAny(subject, entry, privileges...) == nil {
			return true
		}
	}
	return false
}

// Check checks the permissions of an operation.
func (c *Control) Check(o *schema.Operation, subject string, params map[string]any) error {
	p := o.Permissions
	switch {
	case subject == "" && p != nil && p.User == "world":
		return nil
	case subject == "":
		return schema.Denied("user != null")
	case strings.Contains(subject, "!") && !o.AllowToken:
		return &schema.Error{Status: http.StatusForbidden, Message: fmt.Sprintf(
			"Permission check failed (URI '%s' not available with API token, need proper ticket.\n)\n", o.Path)}
	case subject == Root, p != nil && p.User == "all":
		return nil
	case p == nil:
		return schema.Denied("user != root@pam")
	case p.Check == nil:
		return schema.Denied("")
	}
	return c.evaluate(p.Check, subject, params)
}

// evaluate evaluates an expression of the schema.
func (c *Control) evaluate(check []any, subject string, params map[string]any) error {
	kind, _ := check[0].(string)
	switch kind {
	case "and":
		for _, part := range check[1:] {
			if err := c.evaluate(list(part), subject, params); err != nil {
				return err
			}
		}
		return nil
	case "or":
		for _, part := range check[1:] {
			if c.evaluate(list(part), subject, params) == nil {
				return nil
			}
		}
		return schema.Denied("")
	case "perm":
		return c.permission(check, subject, params)
	}
	return schema.Failed("unknown permission test '%s'", kind)
}

func list(value any) []any {
	l, _ := value.([]any)
	return l
}

// permission evaluates ["perm", path, [privileges], options...].
func (c *Control) permission(check []any, subject string, params map[string]any) error {
	path, _ := check[1].(string)
	for name, value := range params {
		path = strings.ReplaceAll(path, "{"+name+"}", schema.Text(value))
	}
	var privileges []string
	for _, name := range list(check[2]) {
		privileges = append(privileges, schema.Text(name))
	}
	isAny := false
	for i := 3; i+1 < len(check); i += 2 {
		switch check[i] {
		case "any":
			isAny = true
		case "require_param":
			if params[schema.Text(check[i+1])] == nil {
				return schema.Denied("")
			}
		}
	}
	if isAny {
		return c.RequireAny(subject, path, privileges...)
	}
	return c.Require(subject, path, privileges...)
}

// Paths are the paths of all entries.
func (c *Control) Paths() []string { return slices.Sorted(maps.Keys(c.entries)) }
