package ovirtsim

import (
	"cmp"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// searchPage is how many rows a page of a search has.
const searchPage = 100

// searchable is an object that a search can find. Fields returns the values of
// a field, and whether there is such a field.
type searchable interface {
	fields(name string) (values []string, known bool)
}

// search is a parsed expression of the search language.
type search struct {
	any  [][]term // terms of one row hold together, any row is enough
	sort string
	desc bool
	page int
}

// term is one comparison; a bare word compares with every text.
type term struct {
	field, op, value string
}

var tokenForm = regexp.MustCompile(`\s*("(?:[^"\\]|\\.)*"|'[^']*'|!=|>=|<=|=|>|<|[^\s=!<>"']+)`)

var errSearch = &fault{
	status: http.StatusBadRequest,
	reason: operationFailed,
	detail: "[The given search is not valid. Please check its syntax and try again.]",
}

// parseSearch reads an expression such as: name = "a*" and status != up sortby name page 2.
func parseSearch(text string) (search, error) {
	out := search{any: [][]term{nil}}
	var tokens []string
	for _, m := range tokenForm.FindAllStringSubmatch(text, -1) {
		tokens = append(tokens, m[1])
	}
	if len(tokens) > 0 && strings.HasSuffix(tokens[0], ":") {
		tokens = tokens[1:]
	}
	for len(tokens) > 0 {
		taken, err := out.take(tokens)
		if err != nil {
			return out, err
		}
		tokens = tokens[taken:]
	}
	return out, nil
}

// take parses one part of an expression and returns the number of its tokens.
func (q *search) take(tokens []string) (int, error) {
	word, last := strings.ToLower(tokens[0]), len(q.any)-1
	switch {
	case word == "and":
		return 1, nil
	case word == "or":
		q.any = append(q.any, nil)
		return 1, nil
	case word == "page" && len(tokens) > 1:
		page, err := strconv.Atoi(tokens[1])
		if err != nil || page < 1 {
			return 0, errSearch
		}
		q.page = page
		return 2, nil
	case word == "sortby" && len(tokens) > 1:
		return q.takeOrder(tokens), nil
	case len(tokens) > 2 && isOperator(tokens[1]):
		q.any[last] = append(q.any[last], term{field: word, op: tokens[1], value: unquote(tokens[2])})
		return 3, nil
	case isOperator(word), len(tokens) > 1 && isOperator(tokens[1]):
		return 0, errSearch
	}
	q.any[last] = append(q.any[last], term{op: "=", value: unquote(tokens[0])})
	return 1, nil
}

// takeOrder parses the sort order.
func (q *search) takeOrder(tokens []string) int {
	q.sort = strings.ToLower(tokens[1])
	if len(tokens) > 2 && (strings.EqualFold(tokens[2], "desc") || strings.EqualFold(tokens[2], "asc")) {
		q.desc = strings.EqualFold(tokens[2], "desc")
		return 3
	}
	return 2
}

func isOperator(token string) bool {
	return slices.Contains([]string{"=", "!=", "<", ">", "<=", ">="}, token)
}

func unquote(token string) string {
	if len(token) > 1 && (token[0] == '"' || token[0] == '\'') {
		token = token[1 : len(token)-1]
		token = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(token)
	}
	return token
}

// matches reports whether an object matches the search.
func (q *search) matches(item searchable, caseSensitive bool) (bool, error) {
	for _, row := range q.any {
		holds := true
		for _, t := range row {
			values, known := item.fields(t.field)
			if !known {
				return false, errSearch
			}
			found := slices.ContainsFunc(values, func(v string) bool { return t.holds(v, caseSensitive) })
			if t.op == "!=" {
				found = !slices.ContainsFunc(values, func(v string) bool { return like(t.value, v, caseSensitive) })
			}
			holds = holds && found
		}
		if holds {
			return true, nil
		}
	}
	return false, nil
}

func (t term) holds(value string, caseSensitive bool) bool {
	order := cmp.Compare(value, t.value)
	a, errA := strconv.ParseFloat(value, 64)
	b, errB := strconv.ParseFloat(t.value, 64)
	if errA == nil && errB == nil {
		order = cmp.Compare(a, b)
	}
	switch t.op {
	case "<":
		return order < 0
	case ">":
		return order > 0
	case "<=":
		return order <= 0
	case ">=":
		return order >= 0
	}
	if t.field == "" {
		return like("*"+t.value+"*", value, false)
	}
	return like(t.value, value, caseSensitive)
}

// like compares with a pattern in which only * is special.
func like(pattern, value string, caseSensitive bool) bool {
	if !caseSensitive {
		pattern, value = strings.ToLower(pattern), strings.ToLower(value)
	}
	pattern = strings.NewReplacer(`\`, `\\`, "[", `\[`, "?", `\?`).Replace(pattern)
	// path.Match lets no star cross a slash.
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(value, "/", "\x00"))
	return err == nil && ok
}

// list responds with the members of a collection that a request selects.
func list[T searchable](q *request, name string, items []T, show func(T) *elem) (*elem, error) {
	found, page := items, 0
	if text := q.query.Get("search"); text != "" {
		expression, err := parseSearch(text)
		if err != nil {
			return nil, err
		}
		caseSensitive := q.param("case_sensitive") != "false"
		found = nil
		for _, item := range items {
			ok, err := expression.matches(item, caseSensitive)
			if err != nil {
				return nil, err
			}
			if ok {
				found = append(found, item)
			}
		}
		order(found, expression)
		page = expression.page
	}
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	if page > 0 {
		if limit < 0 {
			limit = searchPage
		}
		found = found[min(len(found), (page-1)*limit):]
	}
	if limit >= 0 {
		found = found[:min(len(found), limit)]
	}
	out := el(name)
	for _, item := range found {
		out.add(show(item))
	}
	return out, nil
}

func order[T searchable](items []T, q search) {
	if q.sort == "" {
		return
	}
	key := func(item T) string {
		values, _ := item.fields(q.sort)
		return strings.Join(values, ",")
	}
	slices.SortStableFunc(items, func(a, b T) int {
		if q.desc {
			a, b = b, a
		}
		return cmp.Compare(key(a), key(b))
	})
}

// param is a parameter of the query, or one of the matrix parameters of old.
func (q *request) param(name string) string { return q.query.Get(name) }

// limit is max, or -1.
func (q *request) limit() (int, error) {
	text := q.param("max")
	if text == "" {
		return -1, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil {
		return 0, badValue("max", text)
	}
	return limit, nil
}

// placed is an object that a search also finds by where it is.
type placed[T searchable] struct {
	item                T
	cluster, dataCenter string
}

func (p placed[T]) fields(name string) ([]string, bool) {
	switch {
	case name == "cluster" && p.cluster != "":
		return []string{p.cluster}, true
	case name == "datacenter":
		return []string{p.dataCenter}, true
	}
	return p.item.fields(name)
}

// inCluster and inDataCenter place objects by the ID of where they are.
func inCluster[T searchable](s *Server, items []T, id func(T) string) []placed[T] {
	out := make([]placed[T], 0, len(items))
	for _, item := range items {
		p := placed[T]{item: item}
		if cl, ok := s.clusters.get(id(item)); ok {
			p.cluster = cl.name
			if dc, ok := s.dataCenters.get(cl.dataCenter); ok {
				p.dataCenter = dc.name
			}
		}
		out = append(out, p)
	}
	return out
}

func inDataCenter[T searchable](s *Server, items []T, id func(T) string) []placed[T] {
	out := make([]placed[T], 0, len(items))
	for _, item := range items {
		p := placed[T]{item: item}
		if dc, ok := s.dataCenters.get(id(item)); ok {
			p.dataCenter = dc.name
		}
		out = append(out, p)
	}
	return out
}

// listPlaced is list for placed objects.
func listPlaced[T searchable](q *request, name string, items []placed[T], show func(T) *elem) (*elem, error) {
	return list(q, name, items, func(p placed[T]) *elem { return show(p.item) })
}
