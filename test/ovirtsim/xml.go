package ovirtsim

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const xmlHeader = `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>` + "\n"

// elem is an element of a request or a response. A nil elem is an element that
// is missing: all its methods can be called.
type elem struct {
	name string
	attr []xml.Attr
	kids []*elem
	text string
}

// el makes an element with children; nil ones are left out.
func el(name string, kids ...*elem) *elem {
	return (&elem{name: name}).add(kids...)
}

// leaf makes an element with a value in it.
func leaf(name string, value any) *elem {
	e := &elem{name: name}
	switch v := value.(type) {
	case string:
		e.text = v
	case bool:
		e.text = strconv.FormatBool(v)
	case int:
		e.text = strconv.Itoa(v)
	case int64:
		e.text = strconv.FormatInt(v, 10)
	default:
		e.text = fmt.Sprint(v)
	}
	return e
}

// filled makes an element with a value, or none for an empty value.
func filled(name, value string) *elem {
	if value == "" {
		return nil
	}
	return leaf(name, value)
}

// ref makes an element that points to an object below a collection.
func ref(name, collection, id string) *elem {
	if id == "" {
		return nil
	}
	return el(name).at(apiPath+"/"+collection+"/"+id, id)
}

// at gives an element its address and ID.
func (e *elem) at(href, id string) *elem {
	e.set("href", href)
	e.set("id", id)
	return e
}

func (e *elem) set(name, value string) {
	for i := range e.attr {
		if e.attr[i].Name.Local == name {
			e.attr[i].Value = value
			return
		}
	}
	e.attr = append(e.attr, xml.Attr{Name: xml.Name{Local: name}, Value: value})
}

func (e *elem) add(kids ...*elem) *elem {
	for _, kid := range kids {
		if kid != nil {
			e.kids = append(e.kids, kid)
		}
	}
	return e
}

// get finds the first element at a path such as cpu/topology.
func (e *elem) get(path string) *elem {
	for name := range strings.SplitSeq(path, "/") {
		e = e.kid(name)
	}
	return e
}

func (e *elem) kid(name string) *elem {
	if e == nil {
		return nil
	}
	for _, kid := range e.kids {
		if kid.name == name {
			return kid
		}
	}
	return nil
}

// all finds all elements at a path such as disk_attachments/disk_attachment.
func (e *elem) all(path string) []*elem {
	dir, name, ok := strings.Cut(path, "/")
	if !ok {
		dir, name = "", path
	}
	if dir != "" {
		e = e.kid(dir)
	}
	if e == nil {
		return nil
	}
	var found []*elem
	for _, kid := range e.kids {
		if kid.name == name {
			found = append(found, kid)
		}
	}
	return found
}

func (e *elem) attribute(name string) string {
	if e == nil {
		return ""
	}
	for _, a := range e.attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// id is an element's own ID.
func (e *elem) id() string { return e.attribute("id") }

// str is the text at a path, or nothing.
func (e *elem) str(path string) string {
	if found := e.get(path); found != nil {
		return found.text
	}
	return ""
}

// setString takes the text at a path over, when there is some.
func (e *elem) setString(path string, to *string) {
	if found := e.get(path); found != nil {
		*to = found.text
	}
}

// setInt takes the number at a path over, when there is one.
func (e *elem) setInt(path string, to *int64) error {
	found := e.get(path)
	if found == nil || strings.TrimSpace(found.text) == "" {
		return nil
	}
	value, err := strconv.ParseInt(strings.TrimSpace(found.text), 10, 64)
	if err != nil {
		return badValue(found.name, found.text)
	}
	*to = value
	return nil
}

// setBool takes the truth at a path over, when there is one.
func (e *elem) setBool(path string, to *bool) error {
	found := e.get(path)
	if found == nil || strings.TrimSpace(found.text) == "" {
		return nil
	}
	value, err := strconv.ParseBool(strings.TrimSpace(found.text))
	if err != nil {
		return badValue(found.name, found.text)
	}
	*to = value
	return nil
}

// parseElem reads a document with one root.
func parseElem(r io.Reader) (*elem, error) {
	decoder := xml.NewDecoder(r)
	var stack []*elem
	for {
		token, err := decoder.Token()
		if err != nil {
			if errors.Is(err, io.EOF) && len(stack) == 0 {
				return nil, io.EOF
			}
			return nil, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			e := &elem{name: t.Name.Local, attr: append([]xml.Attr(nil), t.Attr...)}
			if len(stack) > 0 {
				stack[len(stack)-1].add(e)
			}
			stack = append(stack, e)
		case xml.CharData:
			if len(stack) > 0 {
				stack[len(stack)-1].text += string(t)
			}
		case xml.EndElement:
			last := stack[len(stack)-1]
			if len(last.kids) > 0 {
				last.text = ""
			}
			if stack = stack[:len(stack)-1]; len(stack) == 0 {
				return last, nil
			}
		}
	}
}

// bytes writes the element as a document; nothing, if it is not there.
func (e *elem) bytes() []byte {
	if e == nil {
		return nil
	}
	var b bytes.Buffer
	// A member of a list is some 8 KiB.
	b.Grow((len(e.kids) + 1) << 13)
	b.WriteString(xmlHeader)
	e.write(&b)
	return b.Bytes()
}

func (e *elem) write(b *bytes.Buffer) {
	b.WriteByte('<')
	b.WriteString(e.name)
	for _, a := range e.attr {
		b.WriteByte(' ')
		b.WriteString(a.Name.Local)
		b.WriteString(`="`)
		escape(b, a.Value)
		b.WriteByte('"')
	}
	if len(e.kids) == 0 && e.text == "" && len(e.attr) > 0 {
		b.WriteString("/>")
		return
	}
	b.WriteByte('>')
	escape(b, e.text)
	for _, kid := range e.kids {
		kid.write(b)
	}
	b.WriteString("</")
	b.WriteString(e.name)
	b.WriteByte('>')
}

// special are the bytes that cannot stand for themselves, or may be part of
// something that cannot.
var special = func() (set [256]bool) {
	for c := range set {
		set[c] = c < ' ' || c > '~' || strings.IndexByte(`<>&"'`, byte(c)) >= 0
	}
	return set
}()

// escape writes text, nearly all of which has nothing to escape.
func escape(b *bytes.Buffer, text string) {
	for i := range len(text) {
		if special[text[i]] {
			_ = xml.EscapeText(b, []byte(text))
			return
		}
	}
	b.WriteString(text)
}
