package web

import (
	"errors"
	"fmt"
	"mime"
	"net/http"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/web/session"
)

// loginPage is the model of the login page.
type loginPage struct {
	// Issuer is the host of the issuer, or empty.
	Issuer string
	// Next is the path to which the login leads.
	Next string
	// Local means that the registry has a folder of data on its machine.
	Local bool
	// Ended means that the browser had a session that has ended.
	Ended bool
	// Failure is why the last attempt failed, in a sentence. IsToken means that
	// it is about the token.
	Failure string
	IsToken bool
}

// Create returns the command that creates a token. It does not name the folder
// of the data, because anyone can see this page.
func (l loginPage) Create() string {
	command := "larder token create --name NAME --scope 'read:**'"
	if l.Local {
		command += " --store DIR"
	}
	return command
}

// login serves the page on which people log in. It reads nothing.
func (h *handler) login(w http.ResponseWriter, r *http.Request) error {
	return h.writeLogin(w, r, r.URL.Query().Get("next"), nil)
}

// writeLogin writes the login page. cause is the error of the last attempt, or
// nil. An error that the person cannot do anything about becomes another page.
func (h *handler) writeLogin(w http.ResponseWriter, r *http.Request, next string, cause error) error {
	v := h.visit(r)
	m := loginPage{
		Issuer: h.Accounts.Issuer(), Next: session.SafeNext(next), Local: h.Local != nil,
		Ended: r.URL.Query().Has("ended"),
	}
	p := page{template: "login", title: "Log in", status: http.StatusOK, ownSearch: true}
	if cause != nil {
		requestlog.From(r.Context()).Err = cause
		var known *session.Error
		switch {
		case errors.As(cause, &known):
			m.Failure, p.status = known.Text, http.StatusForbidden
			m.IsToken = r.URL.Path == "/login" && errors.Is(cause, registry.ErrBadCredential)
			if errors.Is(cause, registry.ErrUnavailable) || errors.Is(cause, registry.ErrIssuer) {
				p.status = http.StatusServiceUnavailable
			}
		case errors.Is(cause, registry.ErrForbidden), errors.Is(cause, registry.ErrInvalid):
			m.Failure, p.status = "This login did not come from the page of this registry. Try again.", http.StatusForbidden
		default:
			p = h.failure(v, cause)
			if f, ok := p.model.(failure); ok {
				f.InLogin = true
				p.model = f
			}
			return h.write(w, v, p)
		}
	}
	p.model = m
	return h.write(w, v, p)
}

// isPublic reports whether a caller without a credential may read something. It
// reads nothing.
func (h *handler) isPublic(r *http.Request) bool {
	anonymous := r.WithContext(r.Context())
	anonymous.Header = nil
	_, _, err := h.Accounts.Identify(anonymous)
	return err == nil
}

func (h *handler) logInWithIssuer(w http.ResponseWriter, r *http.Request) error {
	next := r.URL.Query().Get("next")
	to, err := h.Accounts.Begin(w, r, next)
	if err != nil {
		return h.writeLogin(w, r, next, err)
	}
	return redirect(w, to)
}

// callback completes a login with the issuer.
func (h *handler) callback(w http.ResponseWriter, r *http.Request) error {
	next, err := h.Accounts.Callback(w, r)
	if err != nil {
		return h.writeLogin(w, r, "/", err)
	}
	return redirect(w, next)
}

// logInWithToken begins a session with a token of the registry.
func (h *handler) logInWithToken(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(w, r); err != nil {
		return h.writeLogin(w, r, "/", err)
	}
	next := session.SafeNext(r.PostForm.Get("next"))
	if err := h.Accounts.LogInWithToken(w, r, r.PostForm.Get("token")); err != nil {
		return h.writeLogin(w, r, next, err)
	}
	return redirect(w, next)
}

// logOut ends the session of the browser.
func (h *handler) logOut(w http.ResponseWriter, r *http.Request) error {
	if err := h.Accounts.LogOut(w, r); err != nil {
		return h.writeLogin(w, r, "/", err)
	}
	return redirect(w, "/")
}

// maxForm bounds the body of a form, in bytes.
const maxForm = 64 << 10

// parseForm parses the body of a form. Fields in the query do not count. The
// error is registry.ErrInvalid. It does not contain the body.
func parseForm(w http.ResponseWriter, r *http.Request) error {
	const form = "application/x-www-form-urlencoded"
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != form {
		return fmt.Errorf("%w login: the body is not a form", registry.ErrInvalid)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return fmt.Errorf("%w login: cannot parse the form", registry.ErrInvalid)
	}
	return nil
}

// redirect leads the browser to a page with a GET.
func redirect(w http.ResponseWriter, to string) error {
	w.Header().Set("Location", to)
	httpapi.WriteEmpty(w, http.StatusSeeOther, httpapi.NoStore)
	return nil
}
