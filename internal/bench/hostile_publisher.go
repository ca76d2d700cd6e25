package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
)

// answerWithin is the timeout of a response. It exceeds the bound, so that the
// report shows by how much a response exceeds the bound.
const answerWithin = 8 * time.Second

// sentFile is a file of a publish.
type sentFile struct {
	name string
	data []byte
}

// attacker publishes with a token, without any checks before.
type attacker struct {
	v     victim
	token string
	// urls are the presigned URLs to which files were sent.
	urls []string
}

// reply is the outcome of a publish.
type reply struct {
	// stage is the last request: "announce", "upload", "inspect" or "commit".
	stage string
	// status is the status of its response. It is 0 if there was none.
	status int
	text   string
	// took is the time of all requests together.
	took time.Duration
	// upload is the id of the upload, if it was created.
	upload string
}

func (r reply) refused() bool {
	return r.status >= 400 && r.status < 500 && r.text != ""
}

func (r reply) accepted() bool { return r.status >= 200 && r.status < 300 }

func (r reply) String() string {
	if r.status == 0 {
		return r.stage + ": no answer: " + r.text
	}
	return fmt.Sprintf("%s: %d: %s", r.stage, r.status, r.text)
}

// uploads returns the path of a version's uploads. path begins with modules/ or
// providers/.
func uploads(path, version string) string {
	return protocol.PublishPath + path + "/" + version + "/uploads"
}

// publish announces files, uploads them, requests their inspections, and
// commits.
func (a *attacker) publish(ctx context.Context, path, version string, protocols []string, files ...sentFile) reply {
	begun := time.Now()
	r := a.inspected(ctx, path, version, protocols, files)
	if r.stage == "inspect" && r.accepted() {
		upload := r.upload
		r = a.do(ctx, "commit", http.MethodPost, uploads(path, version)+"/"+upload+"/commit", nil, nil)
		r.upload = upload
	}
	r.took = time.Since(begun)
	return r
}

// inspect is like publish, but deletes the upload after the inspections.
func (a *attacker) inspect(ctx context.Context, path, version string, files ...sentFile) reply {
	begun := time.Now()
	r := a.inspected(ctx, path, version, nil, files)
	r.took = time.Since(begun)
	if r.status != 0 && r.upload != "" {
		a.giveUp(ctx, path, version, r.upload)
	}
	return r
}

func (a *attacker) giveUp(ctx context.Context, path, version, upload string) {
	_ = a.do(ctx, "give up", http.MethodDelete, uploads(path, version)+"/"+upload, nil, nil) // uploads expire anyway
}

func (a *attacker) inspected(ctx context.Context, path, version string, protocols []string, files []sentFile) reply {
	announcement := protocol.Announcement{Protocols: protocols}
	for _, f := range files {
		announcement.Files = append(announcement.Files, protocol.File{
			Name: f.name, Size: int64(len(f.data)), SHA256: sha256Hex(f.data),
		})
	}
	var upload protocol.Begun
	r := a.do(ctx, "announce", http.MethodPost, uploads(path, version), announcement, &upload)
	if !r.accepted() || upload.Upload == "" {
		return r
	}
	for i, f := range files {
		if put := upload.Files[i]; !put.Stored {
			if r = a.put(ctx, put, f.data); !r.accepted() {
				r.upload = upload.Upload
				return r
			}
		}
	}
	for i := range files {
		r = a.inspectFile(ctx, path, version, upload.Upload, i)
		r.upload = upload.Upload
		if !r.accepted() {
			return r
		}
	}
	return r
}

// inspectFile requests an inspection until it is complete.
func (a *attacker) inspectFile(ctx context.Context, path, version, upload string, file int) reply {
	at := fmt.Sprintf("%s/%s/files/%d/inspect", uploads(path, version), upload, file)
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		var found protocol.Inspected
		r := a.do(ctx, "inspect", http.MethodPost, at, nil, &found)
		if r.status != http.StatusAccepted && (!r.accepted() || found.Passed) {
			return r
		}
		if time.Since(begun) > answerWithin {
			return reply{stage: "inspect", text: "the inspection continues"}
		}
	}
}

// put uploads a file to a presigned URL.
func (a *attacker) put(ctx context.Context, to protocol.Put, data []byte) reply {
	a.urls = append(a.urls, to.URL)
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, to.URL, bytes.NewReader(data))
	if err != nil {
		return reply{stage: "upload", text: err.Error()}
	}
	for name, value := range to.Header {
		request.Header.Set(name, value)
	}
	return a.send("upload", request, nil)
}

// do sends a request with the attacker's token, and decodes the response.
func (a *attacker) do(ctx context.Context, stage, method, path string, body, into any) reply {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return reply{stage: stage, text: err.Error()}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, a.v.url()+path, bytes.NewReader(text))
	if err != nil {
		return reply{stage: stage, text: err.Error()}
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("Content-Type", "application/json")
	return a.send(stage, request, into)
}

func (a *attacker) send(stage string, request *http.Request, into any) reply {
	client := a.v.client()
	client.Timeout = answerWithin
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return reply{stage: stage, text: err.Error()}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	r := reply{stage: stage, status: response.StatusCode, text: reason(body)}
	if into != nil && r.accepted() {
		err = errors.Join(err, json.Unmarshal(body, into))
	}
	if err != nil {
		return reply{stage: stage, text: err.Error()}
	}
	return r
}

// reason returns the error of a response.
func reason(body []byte) string {
	var answer struct {
		Errors []string `json:"errors"`
	}
	if json.Unmarshal(body, &answer) == nil && len(answer.Errors) > 0 {
		return strings.Join(answer.Errors, "; ")
	}
	return strings.TrimSpace(string(body))
}
