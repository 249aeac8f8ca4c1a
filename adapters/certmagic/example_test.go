package certmagiclock_test

import (
	"context"
	"fmt"

	"github.com/caddyserver/certmagic"

	"github.com/holdfast-go/holdfast"
	certmagiclock "github.com/holdfast-go/holdfast/adapters/certmagic"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// Certificates stay where they are. Locks are those of holdfast.
func ExampleNew() {
	locks := holdfast.Open(memdriver.New()) // holdfast.New(rdb)
	defer locks.Close()

	files := &certmagic.FileStorage{Path: "/srv/certificates"}
	certmagic.Default.Storage = certmagiclock.New(files, locks, holdfast.WithHolder("web-3"))

	ctx := context.Background()
	fmt.Println(certmagic.Default.Storage.Lock(ctx, "issue_cert_example.com")) // as certmagic does
	fmt.Println("locked for all servers:", !locks.Mutex("issue_cert_example.com").TryLock())
	fmt.Println(certmagic.Default.Storage.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// <nil>
	// locked for all servers: true
	// <nil>
}
