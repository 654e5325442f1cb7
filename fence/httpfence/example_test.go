package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/httpfence"
)

// A service that refuses former holders, and a client that sends the token of
// the lock in its context. The context is usually that of a lock's handle.
func Example() {
	guard := httpfence.Require(fence.NewGate(), func(r *http.Request) string { return r.URL.Path })
	service := httptest.NewServer(guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})))
	defer service.Close()

	client := &http.Client{Transport: &httpfence.Transport{}}
	put := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, service.URL+"/report", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return httpfence.CheckResponse(resp)
	}

	former := fence.NewContext(context.Background(), fence.Grant{Lock: "/locks/report", Token: 33})
	holder := fence.NewContext(context.Background(), fence.Grant{Lock: "/locks/report", Token: 34})
	fmt.Println(put(holder))
	err := put(former)
	fmt.Println(errors.Is(err, fence.ErrStale), err)
	fmt.Println(put(context.Background()) != nil)
	// Output:
	// <nil>
	// true fence: stale token for "/report": 33 < 34, a newer holder has been here
	// true
}
