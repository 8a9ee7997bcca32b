// A pull worker in Go, with the standard library only: fetches jobs, runs them, and reports how they ended.
//
//	JOBS_URL=http://localhost:8000/jobs JOBS_TOKEN=djt_… go run pull_worker.go QUEUE
//
// Its job computes a checksum: {"text": "abc"} → {"sha256": "ba78…"}.  It prints a line for each job that it runs.  After
// SIGTERM it ends when the jobs that it has are reported; if it has none, at once, whether its claim is answered or not.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Jobs of one claim, seconds that a claim waits for jobs, and seconds that a confirmed job is ours.
const limit, wait, lease = 5, 10, 60

// How long a call is repeated.
const patience = time.Minute

var (
	url    = strings.TrimRight(os.Getenv("JOBS_URL"), "/")
	client = http.Client{Timeout: (wait + 10) * time.Second}
)

type fields = map[string]any

type job struct {
	Name  string          `json:"name"`
	ID    string          `json:"id"`
	Data  json.RawMessage `json:"data"`
	Token int64           `json:"token"`
}

// call sends the call until it is answered: each call may arrive twice.  It returns the status, 0 if nobody answers
// or the context ends.
func call(end context.Context, path string, body, answer any) int {
	data, _ := json.Marshal(body)
	deadline, pause := time.Now().Add(patience), 100*time.Millisecond
	for {
		request, _ := http.NewRequestWithContext(end, "POST", url+"/v1/"+path, bytes.NewReader(data))
		request.Header.Set("Authorization", "Bearer "+os.Getenv("JOBS_TOKEN"))
		request.Header.Set("Content-Type", "application/json")
		if response, err := client.Do(request); err == nil {
			err = json.NewDecoder(response.Body).Decode(answer)
			response.Body.Close()
			if err == nil && response.StatusCode < 500 {
				return response.StatusCode
			}
		}
		if end.Err() != nil || time.Now().Add(pause).After(deadline) {
			return 0
		}
		select {
		case <-end.Done():
		case <-time.After(pause):
		}
		if pause *= 2; pause > time.Second {
			pause = time.Second
		}
	}
}

// claim returns jobs that are ours.  Each claim has a new id: if its answer is lost, the same id gets the same jobs.
// After SIGTERM it gives up: what it gets is never confirmed, so it goes back to the queue and is not counted.
func claim(stop context.Context, queue string) (ours []job) {
	id := make([]byte, 16)
	rand.Read(id)
	var answer struct{ Jobs []job }
	host, _ := os.Hostname()
	name := fmt.Sprintf("%.50s.%d", host, os.Getpid()) // what this worker calls itself: users see who runs a job
	request := fields{"limit": limit, "wait": wait, "request_id": hex.EncodeToString(id), "worker": name}
	status := call(stop, "queues/"+queue+"/claim", request, &answer)
	if stop.Err() != nil {
		return nil
	}
	if status != 200 {
		fmt.Fprintln(os.Stderr, "claim:", status)
		time.Sleep(time.Second)
	}
	for _, each := range answer.Jobs {
		// A claim is valid for ten seconds until it is confirmed.  Begin only what is: 200 says that it is ours,
		// however late.
		if extend(each) {
			ours = append(ours, each)
		}
	}
	return ours
}

// extend confirms or keeps a job for `lease` seconds.  A job that runs longer calls this again before the time is over.
func extend(each job) bool {
	body := fields{"token": each.Token, "lease": lease}
	return call(context.Background(), "jobs/"+each.Name+"/"+each.ID+"/extend", body, &fields{}) == 200
}

// run runs a job, and returns its report.
func run(each job) fields {
	fmt.Println(each.ID)
	report := fields{"name": each.Name, "id": each.ID, "token": each.Token, "status": "succeeded"}
	var data struct{ Text *string }
	if err := json.Unmarshal(each.Data, &data); err != nil || data.Text == nil {
		// The data is wrong, so another attempt would fail, too.
		report["status"], report["retryable"], report["error"] = "failed", false, fmt.Sprint("data has no text ", err)
		return report
	}
	report["result"] = fields{"sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(*data.Text)))}
	return report
}

func main() {
	stop, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	for stop.Err() == nil {
		var reports []fields
		for _, each := range claim(stop, os.Args[1]) {
			reports = append(reports, run(each))
		}
		if len(reports) == 0 {
			continue
		}
		var answer struct {
			Reports []struct {
				ID      string
				Status  int
				Problem struct{ Detail string }
			}
		}
		call(context.Background(), "reports", fields{"reports": reports}, &answer)
		for _, each := range answer.Reports {
			if each.Status != 200 { // 409: the attempt is over, and somebody else has the job
				fmt.Fprintf(os.Stderr, "%s: %s\n", each.ID, each.Problem.Detail)
			}
		}
	}
}
