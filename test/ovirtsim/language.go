package ovirtsim

import (
	"net/http"
	"strings"
)

const (
	russian = "ru"
	english = "en"
)

// messages are faults of the engine's backend, by words that only their English
// text has. The Russian texts are this simulator's own.
var messages = []struct{ english, russian string }{
	{"name is already in use", "Имя уже используется, выберите другое имя и повторите попытку."},
	{"Related operation is currently in progress", "Выполняется связанная операция. Повторите попытку позже."},
	{"try again", "Объект заблокирован. Повторите попытку через несколько минут."},
	{"There is no host that satisfies", "Нет хоста, который удовлетворяет текущим ограничениям планировщика."},
	{"Low disk space", "Недостаточно места в домене хранения."},
	{"Delete protection", "Включена защита от удаления."},
}

// language returns the language of the faults of a request: the first one that
// it accepts, or the server's.
func (s *Server) language(r *http.Request) string {
	first, _, _ := strings.Cut(r.Header.Get("Accept-Language"), ",")
	tag, _, _ := strings.Cut(strings.TrimSpace(first), ";")
	switch base, _, _ := strings.Cut(strings.ToLower(tag), "-"); base {
	case "", "*":
		return s.opts.Language
	case russian:
		return russian
	}
	return english
}

// inRussian translates the messages of the engine's backend, which are those in
// brackets. Other faults are not translated by engines either.
func inRussian(detail string) string {
	if !strings.HasPrefix(detail, "[") {
		return detail
	}
	for _, m := range messages {
		if strings.Contains(detail, m.english) {
			return "[" + m.russian + "]"
		}
	}
	return "[Не удалось выполнить операцию.]"
}
